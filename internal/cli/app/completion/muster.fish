# Completion of muster for fish.
function __muster_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l lines ($program __complete $words "$word" 2>/dev/null)
    set -l last $lines[-1]
    set -e lines[-1]
    if test (count $lines) -gt 0
        printf '%s\n' $lines
    else if test "$last" = :files
        if string match -qr -- '^-[^=]*=' $word
            set -l option (string replace -r -- '=.*' '=' $word)
            for file in (__fish_complete_path (string replace -r -- '^[^=]*=' '' $word))
                echo $option$file
            end
        else
            __fish_complete_path $word
        end
    end
end
complete -c muster -e
complete -c muster -f -k -a '(__muster_complete)'
