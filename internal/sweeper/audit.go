package sweeper

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
)

const day = muster.Duration(24 * time.Hour)

// removeAudit removes the first records of the audit log that its limit does not keep. Each removal is itself a record, so it waits until there
// are whole days to remove, or more than a hundredth of the limit. noAge leaves out removals by age.
func (s *Sweeper) removeAudit(ctx context.Context, r *remover, noAge bool) error {
	l := s.Server.Audit
	var before muster.Time
	if l.Age > 0 && !noAge {
		before = s.Engine.Now().Add(-l.Age)
		before -= before % muster.Time(day.Std().Milliseconds())
	}
	base, head, err := s.Store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	keep := int64(0)
	if l.Number > 0 && head.Seq-base.Seq > l.Number+l.Number/100 {
		keep = l.Number
	}
	if before <= 0 && keep == 0 {
		return nil
	}
	upTo, err := s.Store.RemovableAudit(ctx, before, keep)
	if err != nil || upTo == (audit.Head{}) {
		return err
	}
	return r.untilFew(ctx, func() (int, time.Duration, error) {
		return s.Store.RemoveAudit(ctx, upTo, s.Engine.Now(), pageSize)
	})
}
