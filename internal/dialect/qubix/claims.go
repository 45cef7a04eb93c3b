package qubix

import "sync"

// Claims keeps the bridges of one process from taking the same job, where a backend offers it to all of its providers. A nil *Claims
// lets a bridge take everything. Its methods may be called at the same time.
type Claims struct {
	mu     sync.Mutex
	owners map[string]string // of jobs
	order  []string          // of owners, oldest first
}

// maxClaims is how many jobs are remembered.
const maxClaims = 50_000

// NewClaims returns Claims without any.
func NewClaims() *Claims { return &Claims{owners: map[string]string{}} }

// claim reports whether a job is the provider's, which it becomes if it is no other's.
func (c *Claims) claim(job, provider string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, exists := c.owners[job]; exists {
		return owner == provider
	}
	c.owners[job] = provider
	if c.order = append(c.order, job); len(c.order) > maxClaims {
		delete(c.owners, c.order[0])
		c.order = c.order[1:]
	}
	return true
}
