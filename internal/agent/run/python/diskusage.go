package python

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
)

// Usage is the disk usage of environments and uv's cache. Files that they share by hard links count once.
type Usage struct {
	Total  muster.Size
	Cached muster.Size            // part of Total: files that are only in the cache
	Own    map[string]muster.Size // part of Total, by group of environments: files that no other group has
}

// The owners of files that do not belong to one group.
const (
	ownerCache  = ""
	ownerShared = "/"
)

// Usage returns the disk usage. group returns the group of an environment.
func (e *Envs) Usage(group func(name string) string) Usage {
	files := diskFiles{}
	var err error
	if cache := e.CacheDir(); cache != "" {
		err = files.add(cache, ownerCache)
	}
	entries, readErr := os.ReadDir(e.Path(""))
	if !errors.Is(readErr, fs.ErrNotExist) { // nothing was built yet
		err = errors.Join(err, readErr)
	}
	for _, entry := range entries {
		owner := ownerShared
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			owner = group(entry.Name())
		}
		err = errors.Join(err, files.add(e.Path(entry.Name()), owner))
	}
	if err != nil {
		e.log.Warn("disk usage of Python environments is incomplete", slog.Any("error", err))
	}
	u := Usage{Own: map[string]muster.Size{}}
	for _, f := range files {
		u.Total += f.size
		u.Own[f.owner] += f.size
	}
	u.Cached = u.Own[ownerCache]
	delete(u.Own, ownerCache)
	delete(u.Own, ownerShared)
	return u
}

// diskFiles are the files of some folders by identity.
type diskFiles map[any]diskFile

type diskFile struct {
	size  muster.Size
	owner string
}

// add adds the files of an owner, after those of the cache. It skips those that are removed meanwhile.
func (files diskFiles) add(dir, owner string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || info.IsDir() {
			return err
		}
		id, size := fileUsage(path, info)
		f, known := files[id]
		switch {
		case !known || f.owner == ownerCache:
			files[id] = diskFile{size, owner}
		case f.owner != owner:
			files[id] = diskFile{size, ownerShared}
		}
		return nil
	})
}

// diskSize returns the size of a folder on the disk.
func diskSize(dir string) (size muster.Size, err error) {
	files := diskFiles{}
	err = files.add(dir, dir)
	for _, f := range files {
		size += f.size
	}
	return size, err
}
