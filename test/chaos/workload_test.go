//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// jobPlan is one job of the workload, and what its client does with it.
type jobPlan struct {
	At     time.Duration
	Name   string
	Shape  string
	Lease  time.Duration
	N      int           // a size of the shape
	Lines  int           // that each task prints at its begin
	Proxy  bool          // the client is behind a faulty network
	Twice  bool          // the submission is sent twice at once
	Again  time.Duration // it is sent once more after this time, or 0
	Cancel time.Duration // after the acknowledgement, or negative for never

	Retained    retained
	RetainAfter time.Duration
}

// shapes are the shapes of jobs, with their frequency.
var shapes = []struct {
	name   string
	weight int
}{
	{"quick", 8}, {"talk", 8}, {"burst", 3}, {"sleep", 16}, {"array", 6}, {"chain", 8}, {"fan", 5}, {"files", 6},
	{"retry", 4}, {"fail", 4}, {"timeout", 3}, {"stubborn", 3}, {"gang", 3}, {"checkpoint", 5}, {"orphan", 4}, {"skip", 3},
}

// makeWorkload plans the jobs of a run.
func makeWorkload(rng *rand.Rand, duration time.Duration) []jobPlan {
	var items []jobPlan
	total := 0
	for _, s := range shapes {
		total += s.weight
	}
	for at := time.Duration(0); at < duration; at += time.Duration(200+rng.IntN(1600)) * time.Millisecond {
		it := jobPlan{
			At: at, Lease: time.Duration(4+rng.IntN(7)) * time.Second, N: rng.IntN(1 << 16),
			Proxy: rng.IntN(2) == 0, Twice: rng.IntN(4) == 0, Cancel: -1,
		}
		if rng.IntN(4) == 0 {
			it.Lease = 10 * time.Minute
		}
		if rng.IntN(3) > 0 {
			it.Lines = rng.IntN(40)
		}
		if rng.IntN(5) == 0 {
			it.Again = time.Duration(rng.IntN(20_000)) * time.Millisecond
		}
		pick := rng.IntN(total)
		for _, s := range shapes {
			if pick -= s.weight; pick < 0 {
				it.Shape = s.name
				break
			}
		}
		if cancel := time.Duration(rng.IntN(6000)) * time.Millisecond; it.Shape == "stubborn" || rng.IntN(8) == 0 {
			it.Cancel, it.Lease = cancel, min(it.Lease, 10*time.Second)
			if rng.IntN(3) == 0 {
				it.Cancel = 0
			}
		}
		it.Name = fmt.Sprintf("j%d-%s", len(items), it.Shape)
		items = append(items, it)
	}
	return items
}

// The parts of the scripts. A task appends lines to its effect file, KIND ATTEMPT NANOSECONDS DETAIL, each by
// one write; that file is no part of Muster, and the order of its lines is that of what happened. Attempts may run as different users.
const (
	scriptBegin = `E=%[1]s/%[2]s.%[3]s.$MUSTER_INDEX; umask 0
say() { echo "$1 $MUSTER_ATTEMPT $(date +%%s%%N) $2" >> "$E"; }
nonce=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
trap 'say term; exit 143' TERM
say begin $nonce
i=0; while [ $i -lt %[4]d ]; do i=$((i+1)); echo "%[2]s.%[3]s.$MUSTER_INDEX a$MUSTER_ATTEMPT line $i"; done
nap() { n=0; while [ $n -lt $1 ]; do n=$((n+1)); sleep 0.25; say tick; done; }
nospace() { say nospace; exit 9; }
`
	scriptEnd = `echo "{\"nonce\":\"$nonce\",\"attempt\":$MUSTER_ATTEMPT}" > $MUSTER_OUT/result.json || nospace
say end 0
exit 0
`
)

// line is a line of output as scriptBegin and talk print it.
func line(name string, w *Want, index, attempt, n int) string {
	return fmt.Sprintf("%s.%s.%d a%d line %d\n", name, w.Stage, index, attempt, n)
}

// spec creates the job, with effect files in the folder effects, and its expected outcome.
func (it *jobPlan) spec(effects string) (*muster.Spec, []Want) {
	s := &muster.Spec{Name: it.Name, Project: it.project()}
	var wants []Want
	add := func(stage, body string, change func(*muster.TaskSpec, *Want)) {
		w := Want{Stage: stage, Size: 1, State: muster.Succeeded, Lines: it.Lines, Grace: 2 * time.Second, Lease: it.Lease}
		t := muster.TaskSpec{
			Name: stage, Kind: muster.KindProcess, Disconnect: muster.Disconnect{Grace: muster.Duration(it.Lease)}, Kill: muster.Kill{Grace: muster.Duration(w.Grace)},
		}
		if change != nil {
			change(&t, &w)
		}
		end := scriptEnd
		if w.State != muster.Succeeded {
			end = ""
		}
		t.Run = &muster.Command{Shell: fmt.Sprintf(scriptBegin, effects, it.Name, stage, it.Lines) + body + end}
		w.Size, w.Many, w.Gang = t.Size(), t.HasElements(), t.Gang != nil
		if w.Gang {
			w.Size, w.Many = t.Gang.Size, true
		}
		s.Tasks, wants = append(s.Tasks, t), append(wants, w)
	}
	array := func(t *muster.TaskSpec, n int) {
		t.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n) - 1, Step: 1}}}
	}
	output := func(t *muster.TaskSpec, w *Want) { t.Outputs, w.Artifact = []string{"data.bin"}, true }
	makeFile := func(size int) string {
		return fmt.Sprintf("head -c %d /dev/urandom > data.bin || nospace\nsay artifact data.bin:$(sha256sum < data.bin | cut -c1-64)\n", size)
	}
	switch it.Shape {
	case "quick":
		add("main", "", nil)
	case "talk": // slowly, with pauses
		n := 30 + it.N%170
		add("main", fmt.Sprintf(`while [ $i -lt %d ]; do i=$((i+1)); echo "%s.main.$MUSTER_INDEX a$MUSTER_ATTEMPT line $i"; [ $((i%%10)) != 0 ] || { sleep 0.2; say tick; }; done
`, it.Lines+n, it.Name), func(_ *muster.TaskSpec, w *Want) { w.Lines += n })
	case "burst": // much at once
		n := 2000 + it.N%6000
		add("main", fmt.Sprintf(`while [ $i -lt %d ]; do i=$((i+1)); echo "%s.main.$MUSTER_INDEX a$MUSTER_ATTEMPT line $i"; done
nap 2
`, it.Lines+n, it.Name), func(_ *muster.TaskSpec, w *Want) { w.Lines += n })
	case "sleep":
		add("main", fmt.Sprintf("nap %d\n", 8+it.N%80), nil)
	case "array":
		add("main", fmt.Sprintf("nap %d\n", it.N%4), func(t *muster.TaskSpec, _ *Want) { array(t, 4+it.N%20) })
	case "chain":
		add("first", makeFile(1+it.N%20_000)+fmt.Sprintf("nap %d\n", it.N%5), output)
		add("second", "say input 0:$(sha256sum < in/data.bin | cut -c1-64)\nsay ref 0:$REF\n"+makeFile(1+it.N%9_000), func(t *muster.TaskSpec, w *Want) {
			t.Needs, t.Inputs, t.Env = []string{"first"}, []muster.Input{{From: "first", Name: "data.bin", As: "in/data.bin"}}, map[string]string{"REF": "${first.result.nonce}"}
			w.From = "first"
			output(t, w)
		})
		add("third", "say input 0:$(sha256sum < data.bin | cut -c1-64)\nsay ref 0:$REF\n", func(t *muster.TaskSpec, w *Want) {
			t.Needs, t.Inputs, t.Env = []string{"second"}, []muster.Input{{From: "second", Name: "data.bin"}}, map[string]string{"REF": "${second.result.nonce}"}
			w.From = "second"
		})
	case "fan":
		n := 2 + it.N%4
		add("map", makeFile(1+it.N%5_000)+fmt.Sprintf("nap %d\n", it.N%5), func(t *muster.TaskSpec, w *Want) {
			array(t, n)
			output(t, w)
		})
		var body strings.Builder
		env := map[string]string{}
		for e := range n {
			fmt.Fprintf(&body, "say input %d:$(sha256sum < %d/data.bin | cut -c1-64)\nsay ref %d:$REF%d\n", e, e, e, e)
			env[fmt.Sprintf("REF%d", e)] = fmt.Sprintf("${map.%d.result.nonce}", e)
		}
		add("reduce", body.String(), func(t *muster.TaskSpec, w *Want) {
			t.Needs, t.Inputs, t.Env, w.From = []string{"map"}, []muster.Input{{From: "map", Name: "data.bin"}}, env, "map"
		})
	case "files":
		add("main", makeFile(it.N*12), func(t *muster.TaskSpec, w *Want) {
			array(t, 1+it.N%3)
			output(t, w)
		})
	case "retry": // fails by itself at first
		add("main", fmt.Sprintf("[ $MUSTER_ATTEMPT -gt %d ] || { say end 3; exit 3; }\n", 1+it.N%2), func(t *muster.TaskSpec, _ *Want) {
			t.Retries = muster.Retries{Max: 2, Backoff: muster.Duration(500 * time.Millisecond)}
		})
	case "fail":
		add("main", "nap 1\nsay end 7\nexit 7\n", func(_ *muster.TaskSpec, w *Want) { w.State, w.Reason, w.Exit = muster.Failed, muster.ExitCode, 7 })
	case "skip":
		add("first", "say end 5\nexit 5\n", func(_ *muster.TaskSpec, w *Want) { w.State, w.Reason, w.Exit = muster.Failed, muster.ExitCode, 5 })
		add("second", "", func(t *muster.TaskSpec, w *Want) {
			t.Needs, w.State, w.Reason = []string{"first"}, muster.Skipped, muster.NeedNotMet
		})
	case "timeout":
		add("main", "nap 2400\n", func(t *muster.TaskSpec, w *Want) {
			t.Timeout, w.State, w.Reason = muster.Duration(time.Duration(1+it.N%4)*time.Second), muster.TimedOut, muster.Timeout
		})
	case "stubborn": // ignores SIGTERM, and is cancelled
		add("main", "trap '' TERM\nnap 240\n", nil)
	case "gang":
		add("main", fmt.Sprintf("nap %d\n", 1+it.N%8), func(t *muster.TaskSpec, _ *Want) { t.Gang = &muster.Gang{Size: 2 + it.N%2} })
	case "checkpoint": // counts, and continues counting where it was saved
		add("main", fmt.Sprintf(`C=$MUSTER_CHECKPOINT; v=0
[ ! -f $C/state ] || { read v sum < $C/state; [ "$sum" = "sum-$v" ] || say torn; }
say from $v
while [ $v -lt %d ]; do v=$((v+1)); sleep 0.25; say step $v; echo "$v sum-$v" > $C/state.tmp && mv $C/state.tmp $C/state || nospace; done
`, 10+it.N%50), func(t *muster.TaskSpec, _ *Want) {
			t.Checkpoint = &muster.Checkpoint{Every: muster.Duration(time.Second)}
		})
	case "orphan": // leaves a process behind, which must not outlive it
		add("main", `(trap '' TERM; while :; do sleep 0.5; say orphan; done) &
setsid sh -c 'while :; do sleep 0.5; echo "orphan $MUSTER_ATTEMPT $(date +%s%N)" >> "$1"; done' sh "$E" &
nap 4
`, nil)
	}
	return s, wants
}
