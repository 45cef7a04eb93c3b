package placement_test

import (
	"reflect"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// TestEveryRequestChangesTheKey sets each field of a task's resources and placement rules alone: tasks that differ in one must not share a Need.
func TestEveryRequestChangesTheKey(t *testing.T) {
	t.Parallel()
	key := func(s *muster.TaskSpec) string { return new(placement.Limits).Need("", s).Key() }
	spec := &muster.TaskSpec{Resources: muster.Request{GPUs: muster.GPURequest{Count: 1, Memory: 1}}} // without these, other fields of GPUs have no effect
	seen := map[string]string{key(spec): "nothing"}
	var set func(path string, v reflect.Value)
	set = func(path string, v reflect.Value) {
		old := reflect.ValueOf(v.Interface())
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				set(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case reflect.Int, reflect.Int64:
			v.SetInt(3)
		case reflect.Float64:
			v.SetFloat(3)
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.Set(reflect.Append(v, reflect.ValueOf("x").Convert(v.Type().Elem())))
		default:
			t.Fatalf("%s has kind %s", path, v.Kind())
		}
		k := key(spec)
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s have the same key", path, other)
		}
		seen[k] = path
		v.Set(old)
	}
	set("resources", reflect.ValueOf(&spec.Resources).Elem())
	set("where", reflect.ValueOf(&spec.Where).Elem())
}
