package wire

import "github.com/muster-dev/muster"

// States is the state of every task of a job, in few bytes.
type States struct {
	Job    muster.JobID  `json:"job"`
	At     muster.Time   `json:"at"`
	Seq    string        `json:"seq" doc:"the Last-Event-ID with which server-sent events go on after these states"`
	States []string      `json:"states" nullable:"false" doc:"the names of states; runs and packed have positions in this list"`
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
	StartedAt  muster.Time   `json:"started_at,omitzero" doc:"when the first of its attempts started"`
	FinishedAt muster.Time   `json:"finished_at,omitzero" doc:"when its last task ended"`
	From       int           `json:"from" doc:"number of the first task in runs or packed"`
	Length     int           `json:"length" doc:"how many tasks are in runs or packed"`
	Runs       [][2]int      `json:"runs,omitempty" doc:"states in the order of the tasks' numbers, as pairs of a state and how many tasks that follow each other are in it"`
	Packed     []byte        `json:"packed,omitempty" doc:"in place of runs where that is shorter: Base64 of one half byte for each task, the low one first"`
}

// JobUsage is what all ended attempts of a job used together.
type JobUsage struct {
	Job         muster.JobID `json:"job"`
	Cost        float64      `json:"cost" doc:"the workers' prices times the wall time"`
	EnergyWh    float64      `json:"energy_wh" doc:"of the devices"`
	CPUSeconds  float64      `json:"cpu_seconds"`
	GPUSeconds  float64      `json:"gpu_seconds" doc:"wall time times granted devices, also where a device was shared"`
	WallSeconds float64      `json:"wall_seconds"`
	MemoryPeak  muster.Size  `json:"memory_peak" doc:"the most that one attempt had"`
	Attempts    int64        `json:"attempts" doc:"how many ended attempts this is the sum of"`
}

// bytesPerRun is about how many bytes a run takes in JSON.
const bytesPerRun = 8

// EncodeStates returns the states as runs, or packed where that is shorter.
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

// ForEach calls f with the number and state of every task that is encoded, in order. States that this version does not know are 0.
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
