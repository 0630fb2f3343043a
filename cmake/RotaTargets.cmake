# How every target of the project is compiled.

function(rota_sanitize target)
  if(ROTA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ROTA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${ROTA_SANITIZE})
  endif()
endfunction()

function(rota_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(
    ${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor
                      -Wold-style-cast -Wcast-align -Wunused -Woverloaded-virtual -Wdouble-promotion
                      -Wno-missing-field-initializers $<$<BOOL:${ROTA_WERROR}>:-Werror>)
  rota_sanitize(${target})
endfunction()
