package results

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// maxFields is the maximum number of columns of fields of results, and of parameters.
const maxFields = 500

// column is a column of the table.
type column struct {
	name string
	kind kind
}

// row is a task with what is known of its job.
type row struct {
	job  *muster.Job
	task *muster.Task
}

// fixed are the columns of all tables.
var fixed = []struct {
	column

	value func(r row) value
}{
	{column{"task", text}, func(r row) value { return r.task.ID.String() }},
	{column{"job", integer}, func(r row) value { return int64(r.task.ID.Job) }},
	{column{"job_name", text}, func(r row) value { return optional(r.job.Name) }},
	{column{"project", text}, func(r row) value { return optional(r.job.Project) }},
	{column{"stage", text}, func(r row) value { return optional(r.task.Name) }},
	{column{"index", integer}, func(r row) value { return r.index() }},
	{column{"element", text}, func(r row) value { return optional(r.task.Element) }},
	{column{"kind", text}, func(r row) value { return optional(r.task.Kind) }},
	{column{"state", text}, func(r row) value { return r.task.State.String() }},
	{column{"reason", text}, func(r row) value { return optional(string(r.task.Reason)) }},
	{column{"message", text}, func(r row) value { return optional(r.task.Message) }},
	{column{"exit_code", integer}, func(r row) value { return pointed(r.task.ExitCode) }},
	{column{"attempt", integer}, func(r row) value { return positive(int64(r.task.Attempt)) }},
	{column{"worker", text}, func(r row) value { return optional(r.task.WorkerName) }},
	{column{"worker_id", text}, func(r row) value { return optional(string(r.task.Worker)) }},
	{column{"created_at", timestamp}, func(r row) value { return r.task.CreatedAt }},
	{column{"started_at", timestamp}, func(r row) value { return r.task.StartedAt }},
	{column{"finished_at", timestamp}, func(r row) value { return r.task.FinishedAt }},
	{column{"wall_seconds", number}, func(r row) value { return r.usage(func(u *muster.Usage) value { return u.WallSeconds }) }},
	{column{"cpu_seconds", number}, func(r row) value { return r.usage(func(u *muster.Usage) value { return u.CPUSeconds }) }},
	{column{"memory_peak", integer}, func(r row) value {
		return r.usage(func(u *muster.Usage) value { return positive(int64(u.MemoryPeak)) })
	}},
	{column{"gpu_avg", number}, func(r row) value { return r.usage(func(u *muster.Usage) value { return measured(u.GPUAvg) }) }},
	{column{"vram_peak", integer}, func(r row) value {
		return r.usage(func(u *muster.Usage) value { return positive(int64(u.VRAMPeak)) })
	}},
	{column{"energy_wh", number}, func(r row) value { return r.usage(func(u *muster.Usage) value { return measured(u.EnergyWh) }) }},
	{column{"cost", number}, func(r row) value { return r.usage(func(u *muster.Usage) value { return measured(u.Cost) }) }},
	{column{"labels", text}, func(r row) value { return document(r.job.Labels, len(r.job.Labels)) }},
	{column{"result", text}, func(r row) value { return optional(strings.TrimSpace(string(r.task.Result))) }},
}

// optional returns nil for what is unknown.
func optional(s string) value {
	if s == "" {
		return nil
	}
	return s
}

func positive(n int64) value {
	if n <= 0 {
		return nil
	}
	return n
}

func measured(f float64) value {
	if f == 0 {
		return nil
	}
	return f
}

func pointed(n *int) value {
	if n == nil {
		return nil
	}
	return int64(*n)
}

// document returns JSON of n entries, nil for none.
func document(v any, n int) value {
	b, err := json.Marshal(v)
	if err != nil || n == 0 {
		return nil
	}
	return string(b)
}

func (r row) usage(get func(*muster.Usage) value) value {
	if r.task.Usage == nil {
		return nil
	}
	return get(r.task.Usage)
}

// group returns the stage of the task and its spec, nil if the caller may not see them.
func (r row) group() (*muster.Group, *muster.TaskSpec) {
	if r.job.Spec == nil || r.task.Group >= len(r.job.Groups) || r.task.Group >= len(r.job.Spec.Tasks) || r.task.Group < 0 {
		return nil, nil
	}
	return &r.job.Groups[r.task.Group], &r.job.Spec.Tasks[r.task.Group]
}

// position returns where the task is in its stage, -1 if that is unknown or the stage has no elements.
func (r row) position() int {
	g, spec := r.group()
	if g == nil || !spec.HasElements() || r.task.ID.Num < g.First || r.task.ID.Num-g.First >= spec.Size() {
		return -1
	}
	return r.task.ID.Num - g.First
}

// index returns the index of the task's element, as in MUSTER_INDEX.
func (r row) index() value {
	at := r.position()
	if at < 0 {
		return nil
	}
	_, spec := r.group()
	return int64(spec.Index(at))
}

// params returns the parameters of the job, the values of the task's axes in a matrix, and the item of a fan-out.
func (r row) params() []field {
	if r.job.Spec == nil {
		return nil
	}
	var fields []field
	for name, p := range r.job.Spec.Params {
		raw := p.Value
		if len(raw) == 0 {
			raw = p.Default
		}
		if len(raw) > 0 {
			fields = append(fields, field{"param." + name, scalar(raw)})
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	at := r.position()
	if at < 0 {
		return fields
	}
	_, spec := r.group()
	axes := spec.Axes()
	switch {
	case axes != nil:
		for i, v := range spec.Combination(at) {
			fields = append(fields, field{"param." + axes[i], literal(v)})
		}
	case spec.Array != nil && at < len(spec.Array.Items):
		fields = flatten(fields, "item", spec.Array.Items[at], 0)
	}
	return fields
}

// fields returns the values of the columns that are not fixed.
func (r row) fields() []field { return flatten(r.params(), "result", r.task.Result, 0) }

// schema collects the columns of fields.
type schema struct {
	columns []column
	byName  map[string]int
	omitted int // fields of rows that have no column
}

func newSchema() *schema { return &schema{byName: map[string]int{}} }

// add adds the columns of a row. A result that is no object has only the fixed column.
func (s *schema) add(r row) {
	for _, f := range r.fields() {
		if f.name == "result" {
			continue
		}
		i, ok := s.byName[f.name]
		if !ok {
			if len(s.columns) == maxFields {
				s.omitted++
				continue
			}
			i = len(s.columns)
			s.byName[f.name] = i
			s.columns = append(s.columns, column{name: f.name})
		}
		s.columns[i].kind = union(s.columns[i].kind, kindOf(f.value))
	}
}

// finish orders the columns: parameters and items, then fields of results, each in the order in which they were found.
func (s *schema) finish() {
	slices.SortStableFunc(s.columns, func(a, b column) int { return order(a) - order(b) })
	for i := range s.columns {
		s.byName[s.columns[i].name] = i
		if s.columns[i].kind == null {
			s.columns[i].kind = text
		}
	}
}

func order(c column) int {
	return slices.IndexFunc([]string{"param.", "item", "result."}, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) })
}

// all returns the fixed columns and those of fields.
func (s *schema) all() []column {
	var list []column
	for i := range fixed {
		list = append(list, fixed[i].column)
	}
	return append(list, s.columns...)
}

// values returns the cells of a row below all.
func (s *schema) values(r row) []value {
	cells := make([]value, len(fixed)+len(s.columns))
	for i := range fixed {
		cells[i] = as(fixed[i].value(r), fixed[i].kind)
	}
	for _, f := range r.fields() {
		if i, ok := s.byName[f.name]; ok && cells[len(fixed)+i] == nil { // the first of two with one name
			cells[len(fixed)+i] = as(f.value, s.columns[i].kind)
		}
	}
	return cells
}
