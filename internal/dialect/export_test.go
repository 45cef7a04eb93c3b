package dialect

import "time"

// Bound changes how long bodies may take, and how much of them is held.
func (l *Listener) Bound(idle, whole time.Duration, memory int64) {
	l.intake.idle, l.intake.whole = idle, whole
	l.intake.free.Store(memory)
}
