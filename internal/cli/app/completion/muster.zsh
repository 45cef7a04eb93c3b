#compdef muster
compdef _muster muster
# Completion of muster for zsh.
_muster() {
  local line value
  local -a list
  for line in "${(@f)$(${(Q)words[1]/#\~\//$HOME/} __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
    case $line in
      :values) ;;
      :files)
        if (( ! $#list )); then
          [[ $PREFIX == -*=* ]] && compset -P '*='
          _files
          return
        fi
        ;;
      *)
        value=${line%%$'\t'*}
        list+=("${value//:/\\:}${${line#$value}/#$'\t'/:}")
        ;;
    esac
  done
  (( $#list )) && _describe -V -t values value list
}
if [[ ${funcstack[1]} == _muster ]]; then _muster "$@"; fi
