package lazyregexp

import (
	"sync"
	"testing"
)

func TestGet(t *testing.T) {
	re := New(`^a+$`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if !re.Get().MatchString("aaa") || re.Get().MatchString("b") {
				t.Error("it does not match as a regular expression")
			}
		})
	}
	all.Wait()
	if first := re.Get(); re.Get() != first {
		t.Error("it is compiled for each use")
	}
}
