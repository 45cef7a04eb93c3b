package dag

import (
	"path"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

// InputFile is an artifact of an earlier stage that is copied to a task's folder.
type InputFile struct {
	Path   string // in the folder: slash-separated, relative, without ".."
	SHA256 string
	Size   int64
}

// Inputs returns the input files of every task of a stage, in the order of its inputs.
// Artifacts of an array, matrix or gang are placed in folders with the elements' numbers:
// model.pt of element 3 becomes 3/model.pt and, with "as: in/m.pt", in/3/m.pt. A
// NotFound error names the task that lacks an artifact.
func Inputs(s *muster.Spec, stage int, result ResultFunc) ([]InputFile, error) {
	var all []InputFile
	for _, in := range s.Tasks[stage].Inputs {
		from := stageIndex(s, in.From)
		if from < 0 {
			return nil, muster.Errorf(muster.NotFound, "input %s comes from stage %s, which this job does not have", in.Name, in.From)
		}
		t := &s.Tasks[from]
		if t.Size() > muster.MaxInputs-len(all) {
			return nil, muster.Errorf(muster.TooLarge, "the inputs of stage %s are more than %d artifacts", s.Tasks[stage].Name, muster.MaxInputs)
		}
		as := in.As
		if as == "" {
			as = in.Name
		}
		for i := range t.Size() {
			task, ok := result(from, i)
			if !ok {
				return nil, muster.Errorf(muster.NotFound, "the result of stage %s, element %d, is not known", in.From, t.Index(i))
			}
			a, err := artifact(&task, in.Name)
			if err != nil {
				return nil, err
			}
			p := as
			if t.HasElements() {
				p = path.Join(path.Dir(as), strconv.Itoa(t.Index(i)), path.Base(as))
			}
			all = append(all, InputFile{Path: p, SHA256: a.SHA256, Size: a.Size})
		}
	}
	return all, nil
}

// artifact returns the task's artifact with this name, or a NotFound error.
func artifact(t *muster.Task, name string) (muster.Artifact, error) {
	i := slices.IndexFunc(t.Artifacts, func(a muster.Artifact) bool { return a.Name == name })
	if i < 0 {
		return muster.Artifact{}, muster.Errorf(muster.NotFound, "task %s (%s) has no artifact %q: name it in the outputs of that stage", t.ID, t.Name, name)
	}
	return t.Artifacts[i], nil
}
