//go:build !unix

package meter

import (
	"io/fs"

	"github.com/muster-dev/muster"
)

func blocks(info fs.FileInfo) muster.Size { return muster.Size(info.Size()) }

// openFolder has no flags here.
const openFolder = 0
