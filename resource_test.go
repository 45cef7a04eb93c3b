package muster_test

import (
	"reflect"
	"testing"

	"github.com/muster-dev/muster"
)

// TestGrantEqual changes each field.
func TestGrantEqual(t *testing.T) {
	full := func() muster.Grant {
		return muster.Grant{CPUs: 1, Memory: 2, Disk: 3, Slots: 4, GPUs: []string{"a", "b"}, GPUMemory: 5, PIDs: 6}
	}
	a, b := full(), full()
	if !a.Equal(&b) {
		t.Error("equal grants differ")
	}
	for i := range reflect.TypeFor[muster.Grant]().NumField() {
		b := full()
		f := reflect.ValueOf(&b).Elem().Field(i)
		if f.IsZero() {
			t.Errorf("field %d of the test's grant is not set", i)
		}
		f.SetZero()
		if a.Equal(&b) || b.Equal(&a) {
			t.Errorf("field %d makes no difference", i)
		}
	}
	b.GPUs[1] = "c"
	if a.Equal(&b) {
		t.Error("a device makes no difference")
	}
}
