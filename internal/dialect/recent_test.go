package dialect_test

import (
	"strconv"
	"testing"

	"github.com/muster-dev/muster/internal/dialect"
)

func TestRecent(t *testing.T) {
	t.Parallel()
	r := dialect.NewRecent[int](3)
	for i := range 5 {
		r.Set(strconv.Itoa(i), i)
	}
	if _, ok := r.Get("1"); ok {
		t.Error("an old entry is kept")
	}
	if got := r.Add("2", 7); got != 2 {
		t.Errorf("Add replaces an entry: %d", got)
	}
	r.Delete("2")
	r.Delete("unknown")
	if got := r.Add("2", 7); got != 7 { // now the newest
		t.Errorf("the new entry is %d", got)
	}
	r.Set("9", 9)
	for key, want := range map[string]bool{"2": true, "3": false, "4": true, "9": true} {
		if _, ok := r.Get(key); ok != want {
			t.Errorf("entry %s exists: %v", key, ok)
		}
	}
	if got := r.Update("9", func(old int, exists bool) int { return old + 1 }); got != 10 {
		t.Errorf("the updated entry is %d", got)
	}
}
