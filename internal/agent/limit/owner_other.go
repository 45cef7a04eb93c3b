//go:build !unix

package limit

import (
	"io/fs"

	"github.com/muster-dev/muster/internal/agent/run"
)

// owner is not asked: there is no superuser here who could give files away.
func owner(fs.FileInfo, *run.User) (owned, alone bool) { return true, true }
