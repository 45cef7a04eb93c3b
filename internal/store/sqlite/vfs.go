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

// diskVFS keeps the system's error when writing the WAL fails, so that a full disk can be
// distinguished from a broken one. The driver's own VFS loses it.
const vfsName = "muster"

// lockSuffix is the suffix of the lock file, after the database's path.
const lockSuffix = ".lock"

// databaseURI returns the URI of the database at a path under diskVFS. Its files get
// the mode of the lock file, which only the user may access.
func databaseURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	lock := strings.ReplaceAll(url.QueryEscape(path+lockSuffix), "+", "%20") // SQLite does not decode +
	return "file:" + u.EscapedPath() + "?vfs=" + vfsName + "&modeof=" + lock
}

// registerVFS registers diskVFS with the driver. It may be called repeatedly.
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

// isDiskFull reports whether err means that the disk or the user's quota is full.
func isDiskFull(err error) bool {
	return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.IOERR_SHMSIZE) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
