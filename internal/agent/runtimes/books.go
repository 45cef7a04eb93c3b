package runtimes

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// fileID tells a file from others; the zero one tells nothing.
type fileID struct{ device, inode uint64 }

// books hold what folders take on the disk. A file with several names counts once, in whatever folders
// these are, and is freed with its last one.
type books struct {
	files map[fileID]*booked
	dirs  map[string]map[*booked]uint64 // how many names a file has in a folder
}

// booked is one file.
type booked struct {
	size  muster.Size // on the disk
	names uint64      // that it has, wherever they are
	here  uint64      // in the folders of the books
}

func newBooks() *books { return &books{map[fileID]*booked{}, map[string]map[*booked]uint64{}} }

// add takes a folder into the books. One that is not there takes nothing, and neither does what
// cannot be seen.
func (b *books) add(dir string) error {
	names := map[*booked]uint64{}
	b.dirs[dir] = names
	return filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in between
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		id, size, links := onDisk(info)
		f := b.files[id]
		if f == nil {
			f = &booked{size: size, names: links}
			if id != (fileID{}) {
				b.files[id] = f
			}
		}
		f.here++
		names[f]++
		return nil
	})
}

// size is what a folder takes, with what others have, too.
func (b *books) size(dir string) (size muster.Size) {
	for f := range b.dirs[dir] {
		size += f.size
	}
	return size
}

// taken is what all folders take together. What has a name elsewhere, as where the operator's own folder keeps
// packages, would stay without them, and is not theirs.
func (b *books) taken() (size muster.Size) {
	seen := map[*booked]bool{}
	for _, names := range b.dirs {
		for f := range names {
			if !seen[f] && f.here >= f.names {
				size += f.size
			}
			seen[f] = true
		}
	}
	return size
}

// alone is what only these folders have: what is freed with all of them.
func (b *books) alone(dirs ...string) (size muster.Size) {
	names := map[*booked]uint64{}
	for _, dir := range dirs {
		for f, n := range b.dirs[dir] {
			names[f] += n
		}
	}
	for f, n := range names {
		if n >= f.names {
			size += f.size
		}
	}
	return size
}

// drop takes a folder that was removed out of the books, and returns what that freed.
func (b *books) drop(dir string) (freed muster.Size) {
	freed = b.alone(dir)
	for f, n := range b.dirs[dir] {
		f.here, f.names = f.here-n, f.names-min(n, f.names)
	}
	delete(b.dirs, dir)
	return freed
}
