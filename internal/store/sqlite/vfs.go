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

// The file systems under diskVFS.
const (
	vfsName     = "muster"
	copyVFSName = "muster-copy" // for a new database that is written by one connection and not in WAL mode meanwhile
)

// lockSuffix is the suffix of the lock file, after the database's path.
const lockSuffix = ".lock"

// databaseURI returns the URI of the database at a path under diskVFS. Its files get
// the mode of the lock file, which only the user may access.
func databaseURI(path string) string { return uri(path, vfsName, path+lockSuffix) }

// uri returns the URI of the database at a path, whose new files get the mode of another file.
func uri(path, vfs, modeOf string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	modeOf = strings.ReplaceAll(url.QueryEscape(modeOf), "+", "%20") // SQLite does not decode +
	return "file:" + u.EscapedPath() + "?vfs=" + vfs + "&modeof=" + modeOf
}

// registerVFS registers diskVFS with the driver. It may be called repeatedly.
func registerVFS() error {
	system, ok := vfs.Find("os").(vfs.VFSFilename)
	if !ok {
		return errors.New("the SQLite driver has no file system")
	}
	vfs.Register(vfsName, diskVFS{system, vfs.OPEN_WAL})
	vfs.Register(copyVFSName, diskVFS{system, vfs.OPEN_MAIN_DB | vfs.OPEN_MAIN_JOURNAL})
	return nil
}

// diskVFS keeps the system's error when writing a file fails, so that a full disk can be
// distinguished from a broken one. The driver's own VFS loses it.
type diskVFS struct {
	vfs.VFSFilename
	files vfs.OpenFlag // the kinds of files whose errors are kept: those without shared memory
}

// OpenFilename implements vfs.VFSFilename.
func (d diskVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, out, err := d.VFSFilename.OpenFilename(name, flags)
	if err == nil && flags&d.files != 0 {
		f = diskFile{f}
	}
	return f, out, err
}

type diskFile struct{ vfs.File }

// WriteAt implements io.WriterAt.
func (f diskFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
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
