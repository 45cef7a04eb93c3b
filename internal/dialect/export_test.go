package dialect

import "time"

// Bound changes how long bodies may take, and how much of them is held.
func (l *Listener) Bound(idle, whole time.Duration, memory int64) {
	l.intake.idle, l.intake.whole = idle, whole
	l.intake.free.Store(memory)
}

// Free is how many bytes of bodies may still be held.
func (l *Listener) Free() int64 { return l.intake.free.Load() }
