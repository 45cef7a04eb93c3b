package app

import (
	"strconv"

	"github.com/muster-dev/muster"
)

// TaskAddress returns the name of a task that people use: 17_57 for the element of the only array, matrix or gang of a
// job, 17.train.57 if the job has several, else 17.3. An array has the indexes that the user gave, the others count from 0. A job
// without spec, or nil, has numbers only.
func TaskAddress(job *muster.Job, id muster.TaskID) string {
	g := StageOf(job, id)
	if g == nil || job.Spec == nil || g.Index >= len(job.Spec.Tasks) || !job.Spec.Tasks[g.Index].HasElements() {
		return id.String()
	}
	index := strconv.Itoa(job.Spec.Tasks[g.Index].Index(id.Num - g.First))
	if _, only := ArrayStage(job); only {
		return id.Job.String() + "_" + index
	}
	return id.Job.String() + "." + g.Name + "." + index
}

// StageOf returns the stage of a task, nil if it is unknown.
func StageOf(job *muster.Job, id muster.TaskID) *muster.Group {
	if job == nil {
		return nil
	}
	for i := range job.Groups {
		if g := &job.Groups[i]; g.First <= id.Num && id.Num < g.First+g.Size {
			return g
		}
	}
	return nil
}

// ArrayStage returns the only stage of a job that is an array, a matrix or a gang.
func ArrayStage(job *muster.Job) (stage int, ok bool) {
	if job.Spec == nil || len(job.Groups) != len(job.Spec.Tasks) {
		return 0, false
	}
	for i := range job.Spec.Tasks {
		switch {
		case !job.Spec.Tasks[i].HasElements():
		case ok:
			return 0, false
		default:
			stage, ok = i, true
		}
	}
	return stage, ok
}
