# Completion of muster for bash, without the package bash-completion.
_muster() {
  local line=${COMP_LINE:0:COMP_POINT} words=() glued= word i break typed=
  # Bash splits words at = and : (COMP_WORDBREAKS): put them together again.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $line == [[:space:]]* ]]; then
      glued= line=${line#"${line%%[![:space:]]*}"}
    fi
    ((i == COMP_CWORD)) && word=$line
    line=${line#"$word"}
    if [[ $glued ]]; then words[${#words[@]} - 1]+=$word; else words+=("$word"); fi
    glued=1
  done
  word=${words[${#words[@]} - 1]}
  # Bash replaces only what is behind the last of them.
  for break in = : @; do
    [[ $COMP_WORDBREAKS == *"$break"* && $word == *"$break"* ]] || continue
    i=${word%"$break"*}$break
    ((${#i} > ${#typed})) && typed=$i
  done
  line=${words[0]/#\~\//$HOME/}
  type -P "$line" >/dev/null || line=muster # an alias: complete -F _muster ALIAS
  words[0]=$line
  COMPREPLY=()
  while IFS=$'\t' read -r line _; do
    case $line in
      :values) ;;
      :files)
        if ((${#COMPREPLY[@]} == 0)) && ! compopt -o default 2>/dev/null; then
          while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${word#"$typed"}")
        fi
        ;;
      *) COMPREPLY+=("${line#"$typed"}") ;;
    esac
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:.,] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o nosort -F _muster muster 2>/dev/null || complete -F _muster muster
