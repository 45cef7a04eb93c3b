package workerd

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// readSamples returns the samples in an attempt's log.
func readSamples(ctx context.Context, logs *tasklog.Dir, id muster.AttemptID) (list []muster.Sample, err error) {
	r, err := logs.Open(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	dec := tasklog.NewDecoder(r)
	for {
		rec, err := dec.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return list, nil
		case err != nil:
			return list, err
		case rec.Stream != tasklog.Usage:
			continue
		}
		var s muster.Sample
		if err := json.Unmarshal(rec.Data, &s); err != nil {
			return list, err
		}
		list = append(list, s)
	}
}
