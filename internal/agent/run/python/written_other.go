//go:build !linux

package python

import "github.com/muster-dev/muster"

// written is not known here.
func written(int) muster.Size { return 0 }
