# ask.fish COMPLETIONS: what fish offers at the end of each line of stdin.
source $argv[1]
while read -l line
    echo "> $line"
    complete -C "$line" | string replace -r '\t.*' ''
end
# `string` tells by its status whether it found a tab.
true
