package dialect

import "time"

// SetBodyLimits changes how long bodies may take, and how much of them is held.
func (l *Listener) SetBodyLimits(idle, whole time.Duration, memory int64) {
	l.bodies.idleTimeout, l.bodies.readTimeout = idle, whole
	l.bodies.budget.Store(memory)
}

// BodyBudget is how many bytes of bodies may still be held.
func (l *Listener) BodyBudget() int64 { return l.bodies.budget.Load() }
