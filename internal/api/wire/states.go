package wire

import "github.com/muster-dev/muster"

// States is the state of every task of a job, in a compact form.
type States struct {
	Job    muster.JobID  `json:"job"`
	At     muster.Time   `json:"at"`
	Seq    string        `json:"seq" doc:"Last-Event-ID with which server-sent events resume after these states"`
	States []string      `json:"states" nullable:"false" doc:"names of states; runs and packed have positions in this list"`
	Stages []StageStates `json:"stages" nullable:"false"`
}

// StageStates is the state of every task of a stage.
type StageStates struct {
	Name       string        `json:"name"`
	Index      int           `json:"index"`
	First      int           `json:"first" doc:"number of its first task"`
	Size       int           `json:"size"`
	Needs      []string      `json:"needs" nullable:"false" doc:"stages that must succeed first"`
	Kind       string        `json:"kind"`
	Counts     muster.Counts `json:"counts"`
	StartedAt  muster.Time   `json:"started_at,omitzero" doc:"start of its first attempt"`
	FinishedAt muster.Time   `json:"finished_at,omitzero" doc:"end of its last task"`
	From       int           `json:"from" doc:"number of the first task in runs or packed"`
	Length     int           `json:"length" doc:"number of tasks in runs or packed"`
	Runs       [][2]int      `json:"runs,omitempty" doc:"run-length encoded states by task number: pairs of a state and the number of consecutive tasks in it"`
	Packed     []byte        `json:"packed,omitempty" doc:"in place of runs if that is shorter: Base64 of 4 bits per task, low half byte first"`
}

// JobUsage is the total usage of a job's finished attempts.
type JobUsage struct {
	Job         muster.JobID `json:"job"`
	Cost        float64      `json:"cost" doc:"workers' prices times wall time"`
	EnergyWh    float64      `json:"energy_wh" doc:"energy of the devices"`
	CPUSeconds  float64      `json:"cpu_seconds"`
	GPUSeconds  float64      `json:"gpu_seconds" doc:"wall time times granted devices, shared or not"`
	WallSeconds float64      `json:"wall_seconds"`
	MemoryPeak  muster.Size  `json:"memory_peak" doc:"highest of any attempt"`
	Attempts    int64        `json:"attempts" doc:"number of finished attempts that reported their usage"`
}

// bytesPerRun is the approximate size of a run in JSON.
const bytesPerRun = 8

// EncodeStates returns the states as runs, or packed if that is shorter.
func EncodeStates(states []muster.TaskState) (runs [][2]int, packed []byte) {
	maxRuns := len(states)*2/3/bytesPerRun + 16 // Base64 of half bytes
	runs = [][2]int{}
	for i := 0; i < len(states); {
		n := 1
		for i+n < len(states) && states[i+n] == states[i] {
			n++
		}
		if len(runs) == maxRuns {
			return nil, packStates(states)
		}
		runs = append(runs, [2]int{int(states[i] - muster.Waiting), n})
		i += n
	}
	return runs, nil
}

func packStates(states []muster.TaskState) []byte {
	packed := make([]byte, (len(states)+1)/2)
	for i, s := range states {
		packed[i/2] |= byte(s-muster.Waiting) << (i % 2 * 4)
	}
	return packed
}

// ForEach calls f with the number and state of every task, in order. Unknown states are 0.
func (s *StageStates) ForEach(f func(num int, state muster.TaskState)) {
	num := s.From
	if s.Packed != nil {
		for n := max(0, min(2*len(s.Packed), s.Length)); num < s.From+n; num++ {
			f(num, stateOfIndex(int(s.Packed[(num-s.From)/2]>>((num-s.From)%2*4)&15)))
		}
		return
	}
	for _, run := range s.Runs {
		for range run[1] {
			f(num, stateOfIndex(run[0]))
			num++
		}
	}
}

func stateOfIndex(i int) muster.TaskState {
	if i < 0 || i >= len(muster.TaskStates) {
		return 0
	}
	return muster.TaskStates[i]
}
