# Sourced by .ci/run and .ci/deep: stages, and at the end a table of their times, whatever the end is.

stage_names=() stage_seconds=()
stage_name="" stage_begun=0

end_stage() {
  [ -n "$stage_name" ] || return 0
  stage_names+=("$stage_name")
  stage_seconds+=($((SECONDS - stage_begun)))
  stage_name=""
}

stage() {
  end_stage
  stage_name=$1 stage_begun=$SECONDS
  printf '\n== %s (%s)\n' "$1" "$(date +%T)"
}

print_stages() {
  local code=$? index
  [ "$code" -eq 0 ] || stage_name="$stage_name (failed)"
  end_stage
  printf '\n%-64s %9s\n' stage min:s
  for index in "${!stage_names[@]}"; do
    printf '%-64s %6d:%02d\n' "${stage_names[index]}" $((stage_seconds[index] / 60)) $((stage_seconds[index] % 60))
  done
  printf '%-64s %6d:%02d\n' together $((SECONDS / 60)) $((SECONDS % 60))
  exit "$code"
}
trap print_stages EXIT

# What ctest says last, for whoever reads only the end of a log.
closing_line=""
tested() {
  local log
  log=$(mktemp)
  "$@" | tee "$log"
  closing_line=$(grep -E '^[0-9]+% tests passed' "$log" | tail -1)
  rm -f "$log"
}
