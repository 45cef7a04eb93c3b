package runtimes

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// fileID identifies a file; zero means unknown.
type fileID struct{ device, inode uint64 }

// diskUsage computes the disk usage of folders that share files by hard links. A file counts once and is freed with its last link.
type diskUsage struct {
	files map[fileID]*diskFile
	dirs  map[string]map[*diskFile]uint64 // number of links of a file in a folder
}

// diskFile is one file.
type diskFile struct {
	size      muster.Size // on the disk
	links     uint64      // everywhere
	linksHere uint64      // in dirs
}

func newDiskUsage() *diskUsage {
	return &diskUsage{map[fileID]*diskFile{}, map[string]map[*diskFile]uint64{}}
}

// add adds a folder. A missing folder has size 0. After an error, the usage has the files that were read.
func (b *diskUsage) add(dir string) error {
	names := map[*diskFile]uint64{}
	b.dirs[dir] = names
	return filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed concurrently
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

// size returns the size of a folder, including files that it shares with others.
func (b *diskUsage) size(dir string) (size muster.Size) {
	for f := range b.dirs[dir] {
		size += f.size
	}
	return size
}

// total returns the size of all folders together, without files that have links elsewhere, such as in the operator's own uv cache:
// removing the folders would not free those.
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

// exclusive returns how much the removal of these folders frees.
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

// remove drops a folder that was removed, and returns how much that freed.
func (b *diskUsage) remove(dir string) (freed muster.Size) {
	freed = b.exclusive(dir)
	for f, n := range b.dirs[dir] {
		f.linksHere, f.links = f.linksHere-n, f.links-min(n, f.links)
	}
	delete(b.dirs, dir)
	return freed
}
