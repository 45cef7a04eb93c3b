package schedules

import (
	"context"
	"time"
)

// Step makes at most one decision, as Run does.
func (s *Scheduler) Step(ctx context.Context) (time.Duration, error) { return s.step(ctx) }
