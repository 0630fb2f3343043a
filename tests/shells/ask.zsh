# ask.zsh COMPLETIONS: what an interactive zsh offers at the end of each line of stdin.
emulate zsh
zmodload zsh/zpty
export ZDOTDIR=$(mktemp -d)
cp $1 $ZDOTDIR/_rota
cat >$ZDOTDIR/questions

# Its first prompt asks all, and ends it. compadd, through which every completion goes, writes down what matches.
cat >$ZDOTDIR/.zshrc <<'RC'
fpath=($ZDOTDIR $fpath)
autoload -Uz compinit
compinit -u -D
setopt no_auto_list no_beep
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-[^-]#[OAD]\ * ]]; then
    local -a matches_found
    builtin compadd -A matches_found "$@"
    (($#matches_found)) && print -rl -- $matches_found >>$ZDOTDIR/answers
  fi
  builtin compadd "$@"
}
zle-line-init() {
  local line
  while IFS= read -r line; do
    print -r -- "> $line" >>$ZDOTDIR/answers
    BUFFER=$line CURSOR=$#line
    zle complete-word
  done <$ZDOTDIR/questions
  BUFFER=exit
  zle accept-line
}
zle -N zle-line-init
RC

zpty asked zsh -d -i
while zpty -r asked; do :; done >$ZDOTDIR/terminal
cat $ZDOTDIR/answers || cat $ZDOTDIR/terminal
rm -r $ZDOTDIR
