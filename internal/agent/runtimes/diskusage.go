package runtimes

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// fileID tells a file from others; the zero one tells nothing.
type fileID struct{ device, inode uint64 }

// diskUsage hold what folders take on the disk. A file with several names counts once, in whatever folders
// these are, and is freed with its last one.
type diskUsage struct {
	files map[fileID]*diskFile
	dirs  map[string]map[*diskFile]uint64 // how many names a file has in a folder
}

// diskFile is one file.
type diskFile struct {
	size      muster.Size // on the disk
	links     uint64      // that it has, wherever they are
	linksHere uint64      // in the folders of the books
}

func newDiskUsage() *diskUsage {
	return &diskUsage{map[fileID]*diskFile{}, map[string]map[*diskFile]uint64{}}
}

// add takes a folder into the books. One that is not there takes nothing, and neither does what
// cannot be seen.
func (b *diskUsage) add(dir string) error {
	names := map[*diskFile]uint64{}
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
		id, size, links := fileUsage(info)
		f := b.files[id]
		if f == nil {
			f = &diskFile{size: size, links: links}
			if id != (fileID{}) {
				b.files[id] = f
			}
		}
		f.linksHere++
		names[f]++
		return nil
	})
}

// size is what a folder takes, with what others have, too.
func (b *diskUsage) size(dir string) (size muster.Size) {
	for f := range b.dirs[dir] {
		size += f.size
	}
	return size
}

// total is what all folders take together. What has a name elsewhere, as where the operator's own folder keeps
// packages, would stay without them, and is not theirs.
func (b *diskUsage) total() (size muster.Size) {
	seen := map[*diskFile]bool{}
	for _, names := range b.dirs {
		for f := range names {
			if !seen[f] && f.linksHere >= f.links {
				size += f.size
			}
			seen[f] = true
		}
	}
	return size
}

// exclusive is what only these folders have: what is freed with all of them.
func (b *diskUsage) exclusive(dirs ...string) (size muster.Size) {
	names := map[*diskFile]uint64{}
	for _, dir := range dirs {
		for f, n := range b.dirs[dir] {
			names[f] += n
		}
	}
	for f, n := range names {
		if n >= f.links {
			size += f.size
		}
	}
	return size
}

// remove takes a folder that was removed out of the books, and returns what that freed.
func (b *diskUsage) remove(dir string) (freed muster.Size) {
	freed = b.exclusive(dir)
	for f, n := range b.dirs[dir] {
		f.linksHere, f.links = f.linksHere-n, f.links-min(n, f.links)
	}
	delete(b.dirs, dir)
	return freed
}
