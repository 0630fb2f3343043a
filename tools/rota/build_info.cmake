# Writes OUTPUT, a header that says what was built: at every build, and only if it changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude * OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE} log -1 --format=%cs OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET)
if(failed)
  set(commit unknown)
  string(TIMESTAMP date %Y-%m-%d UTC)
endif()
set(text "#pragma once\n\n#define ROTA_COMMIT \"${commit}\"\n#define ROTA_DATE \"${date}\"\n#define ROTA_BUILD \"${BUILD}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} ${text})
endif()
