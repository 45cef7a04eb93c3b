package sqlite

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// SQLite's own names for the disk do not tell a full disk from a broken one when
// the WAL is written: the driver loses the system's error on the way. diskVFS keeps
// it.
const vfsName = "muster"

// lockSuffix is behind the database's path in that of its lock.
const lockSuffix = ".lock"

// databaseURI returns the name of the database at a path under diskVFS. Its files get
// the rights of its lock, which is the user's alone.
func databaseURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	lock := strings.ReplaceAll(url.QueryEscape(path+lockSuffix), "+", "%20") // SQLite knows no +
	return "file:" + u.EscapedPath() + "?vfs=" + vfsName + "&modeof=" + lock
}

// registerVFS makes diskVFS known to the driver; once or many times is the same.
func registerVFS() error {
	system, ok := vfs.Find("os").(vfs.VFSFilename)
	if !ok {
		return errors.New("the SQLite driver has no file system")
	}
	vfs.Register(vfsName, diskVFS{system})
	return nil
}

type diskVFS struct{ vfs.VFSFilename }

// OpenFilename implements vfs.VFSFilename.
func (d diskVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, out, err := d.VFSFilename.OpenFilename(name, flags)
	if err == nil && flags&vfs.OPEN_WAL != 0 {
		f = walFile{f}
	}
	return f, out, err
}

type walFile struct{ vfs.File }

// WriteAt implements io.WriterAt.
func (w walFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := w.File.WriteAt(p, off)
	if isDiskFull(err) {
		err = vfs.SystemError(err, sqlite3.FULL)
	}
	return n, err
}

// isDiskFull reports whether err means that the disk, or the user's share of it, is full.
func isDiskFull(err error) bool {
	return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.IOERR_SHMSIZE) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
