package probe

import "testing"

// BenchmarkHints is what a worker spends each second to see whether anything
// changed.
func BenchmarkHints(b *testing.B) {
	p := New(Config{Data: b.TempDir()})
	if _, err := p.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = fingerprint(p.hints()...)
	}
}

// BenchmarkRun is a look at everything after the first one. The CPU of the tools that it asks
// is that of child processes: run it with time(1).
func BenchmarkRun(b *testing.B) {
	p := New(Config{Data: b.TempDir()})
	for b.Loop() {
		if _, err := p.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
