package mloc

import (
	"encoding/json"

	"github.com/muster-dev/muster"
)

// TaskType returns spec.taskType of a task, "" if there is none.
func TaskType(d Document) string { return Text(d.Spec["taskType"]) }

// HashFields returns what a worker writes into its hash when it registers.
func HashFields(h WorkerHash) map[string]string { return h.fields() }

// ToMuster returns the stage of a Muster job that does what a task says: ToMusterWithBase without an address of results.
func ToMuster(d Document) (muster.TaskSpec, error) { return ToMusterWithBase(d, "") }

// FromMuster returns the result that a task has at MLOC, of what a task of Muster returned in so many seconds: ToResult without files.
func FromMuster(d Document, taskID string, result json.RawMessage, seconds float64) Object {
	return ToResult(d, taskID, result, nil, seconds)
}

// CheckSpecFields fails if an object has other fields than these and those that say how any task is run.
func CheckSpecFields(spec Object, at string, fields ...string) error {
	return CheckFields(spec, at, append(fields, commonFields...)...)
}
