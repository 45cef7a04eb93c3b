package muster

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	known := []string{"name", "kind", "needs", "memory", "requirements", "SIGTERM", "worker_lost"}
	for in, want := range map[string]string{
		"naem": "name", "Name": "name", "memry": "memory", "requirement": "requirements", "need": "needs", "TERM": "SIGTERM",
		"lost": "worker_lost", "zzzz": "", "": "", "x": "", strings.Repeat("name", 1000): "",
	} {
		if got := Nearest(in, known); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", in, got, want)
		}
	}
}

func TestDistanceIsAMetricForSmallEdits(t *testing.T) {
	word := rapid.StringMatching(`[a-c]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		const limit = 100
		d := distance(a, b, limit)
		if d != distance(b, a, limit) {
			t.Fatal("not symmetric")
		}
		limited := rapid.IntRange(0, 6).Draw(t, "few")
		if cut := distance(a, b, limited); d < limited && cut != d || d >= limited && cut < limited {
			t.Fatalf("distance(%q, %q) = %d, but %d with limit %d", a, b, d, cut, limited)
		}
		if (d == 0) != (a == b) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
		if d > max(len(a), len(b)) {
			t.Fatalf("distance(%q, %q) = %d is more than the length", a, b, d)
		}
		if edited := distance(a, b+"x", limit); edited > d+1 {
			t.Fatalf("one more letter costs %d", edited-d)
		}
	})
}
