package engine

// Backlog returns how many requests wait for the engine.
func (e *Engine) Backlog() int {
	e.inbox.mu.Lock()
	defer e.inbox.mu.Unlock()
	return len(e.inbox.queue)
}

// Sessions returns how many workers are connected.
func (e *Engine) Sessions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.sessions)
}
