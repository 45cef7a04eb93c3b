#!/bin/sh
# A stand-in for nvidia-smi: it prints what the files beside it say at that
# moment. Forms: -L; -q -x; -q -d PIDS; --query-gpu=… and --query-compute-apps=…
# with --format=csv,noheader,nounits; each but -L also with -l SECONDS or -lms
# MILLISECONDS.
d=${0%/*}
mode=table every= fields= file= xml=
while [ $# -gt 0 ]; do
	case $1 in
	-L) mode=list ;;
	-q) mode=log ;;
	-x) xml=1 ;;
	-d) [ "$2" = PIDS ] || { echo "Invalid display type: $2"; exit 2; }; mode=pids; shift ;;
	-l) every=$2; shift ;;
	-lms) every=$(awk "BEGIN { print $2 / 1000 }"); shift ;;
	--query-gpu=*) mode=csv file=gpus fields=${1#*=} ;;
	--query-compute-apps=*) mode=csv file=apps fields=${1#*=} ;;
	--format=*) ;;
	*) echo "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."; exit 2 ;;
	esac
	shift
done
[ -z "$xml" ] || mode=xml

answer() {
	if [ -e "$d/hang" ]; then exec sleep 1000000; fi
	if [ -e "$d/status" ]; then
		read -r status <"$d/status"
		cat "$d/complaint"
		exit "$status"
	fi
	case $mode in
	csv)
		awk -F '\t' -v want="$fields" -v now="$(date '+%Y/%m/%d %H:%M:%S.000')" '
		NR == 1 {
			for (i = 1; i <= NF; i++) at[$i] = i
			n = split(want, f, ",")
			for (i = 1; i <= n; i++) if (f[i] != "timestamp" && !(f[i] in at)) {
				printf "Field \"%s\" is not a valid field to query.\n\n", f[i]
				exit 2
			}
			next
		}
		{
			line = ""
			for (i = 1; i <= n; i++) line = line (i > 1 ? ", " : "") (f[i] == "timestamp" ? now : $at[f[i]])
			print line
		}' "$d/$file" || exit
		;;
	*) cat "$d/$mode" ;;
	esac
}

answer
while [ -n "$every" ]; do
	sleep "$every"
	answer
done
