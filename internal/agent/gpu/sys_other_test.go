//go:build !unix

package gpu_test

import (
	"errors"
	"testing"
	"time"
)

func fifo(string) error { return errors.New("no named pipes here") }

func cpu(b *testing.B) time.Duration {
	b.Skip("not measured on this system")
	return 0
}
