# ask.bash COMPLETIONS: what bash offers at the end of each line of stdin.
set -u
source "$1"
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
finds=$(complete -p rota | sed 's/.*-F \([^ ]*\) rota$/\1/')
while IFS= read -r COMP_LINE; do
  echo "> $COMP_LINE"
  COMP_POINT=${#COMP_LINE}
  read -ra COMP_WORDS <<<"$COMP_LINE"
  [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  "$finds" rota "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
  ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
done
