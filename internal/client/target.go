package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
)

// Target is the file to which a download is written: Name, a slash-separated path below Root. No symbolic link below Root is followed, and
// only the file itself and a partial download beside it are changed. What is at Name is replaced as a whole, never written to.
type Target struct {
	Root    *os.Root
	Name    string
	Replace bool // what is there already; otherwise that is a Conflict, also if it appears during the download
}

// Stat reports whether something is at the target, and whether that is a regular file with the content of a. It reads only regular files. A
// target that no download can replace, such as a directory, or one below a symbolic link, is Invalid.
func (t Target) Stat(ctx context.Context, a muster.Artifact) (exists, same bool, err error) {
	dir, err := t.openDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	defer func() { _ = dir.Close() }()
	base := path.Base(t.Name)
	info, err := t.lstat(dir, base)
	if err != nil || info == nil {
		return false, false, err
	}
	if !info.Mode().IsRegular() || info.Size() != a.Size {
		return true, false, nil
	}
	f, err := openSame(dir, base, os.O_RDONLY, info)
	if err != nil {
		return true, false, muster.Errorf(muster.Invalid, "read %s: %w", t, reason(err))
	}
	defer func() { _ = f.Close() }()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })() // ends the copy
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return true, false, muster.Errorf(muster.Invalid, "read %s: %w", t, reason(err))
	}
	return true, hex.EncodeToString(sum.Sum(nil)) == a.SHA256, nil
}

// String returns the path of the target.
func (t Target) String() string { return filepath.Join(t.Root.Name(), filepath.FromSlash(t.Name)) }

// lstat describes what is at the target in its directory, nil if nothing is.
func (t Target) lstat(dir *os.Root, base string) (fs.FileInfo, error) {
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // as documented
	case err != nil:
		return nil, muster.Errorf(muster.Invalid, "cannot write %s: %w", t, reason(err))
	case info.Mode().IsRegular() || info.Mode()&fs.ModeSymlink != 0:
		return info, nil
	}
	return nil, muster.Errorf(muster.Invalid, "cannot replace %s: it is %s; remove it or use another directory", t, kindOf(info))
}

// openDir opens the directory of the target, which it creates on request. Otherwise a missing one is fs.ErrNotExist.
func (t Target) openDir(create bool) (*os.Root, error) {
	dir, err := t.Root.OpenRoot(".")
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "open %s: %w", t.Root.Name(), reason(err))
	}
	parent := path.Dir(t.Name)
	if parent == "." {
		return dir, nil
	}
	for element := range strings.SplitSeq(parent, "/") {
		below, err := openElement(dir, element, create)
		_ = dir.Close()
		switch {
		case !create && errors.Is(err, fs.ErrNotExist):
			return nil, err
		case err != nil:
			return nil, muster.Errorf(muster.Invalid, "cannot write %s: %s: %w", t, filepath.Join(dir.Name(), element), reason(err))
		}
		dir = below
	}
	return dir, nil
}

// openElement opens a directory in dir that is not a symbolic link.
func openElement(dir *os.Root, name string, create bool) (*os.Root, error) {
	info, err := dir.Lstat(name)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := dir.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err = dir.Lstat(name)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("it is " + kindOf(info) + "; remove it or use another directory")
	}
	below, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if opened, err := below.Stat("."); err != nil || !os.SameFile(info, opened) {
		_ = below.Close()
		return nil, errors.New("it was replaced meanwhile")
	}
	return below, nil
}

// kindOf names what a file is, with its article.
func kindOf(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// openSame opens the file that info describes. It does not wait for the other end of a pipe.
func openSame(dir *os.Root, name string, flag int, info fs.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(name, flag|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		_ = f.Close()
		return nil, errors.New("it was replaced meanwhile")
	}
	return f, nil
}

// partName returns the name of the partial download of an artifact with this base name and SHA-256.
func partName(base, sha256Hex string) string {
	sum := sha256.Sum256([]byte(base + "/" + sha256Hex))
	return ".muster-" + hex.EncodeToString(sum[:12]) + ".part"
}

// openPart opens a partial download. It continues one only if that is a file of this user without other names, so that nothing that
// someone else prepared is written to; anything else of the name but a directory is removed.
func openPart(dir *os.Root, name string) (*os.File, error) {
	info, err := dir.Lstat(name)
	switch {
	case err == nil && isPrivate(info):
		return openSame(dir, name, os.O_RDWR, info)
	case err == nil && !info.IsDir():
		err = dir.Remove(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
}

// place gives a complete download the name base. After an error the download can be continued.
func (t Target) place(dir *os.Root, part, base string) error {
	info, err := t.lstat(dir, base)
	switch {
	case err != nil:
		return err
	case t.Replace:
		err = dir.Rename(part, base)
	default:
		// This fails if base exists by now, also as another name that the system does not distinguish from it.
		switch err = dir.Link(part, base); {
		case err == nil:
			err = dir.Remove(part)
		case info != nil:
			err = fs.ErrExist
		case !errors.Is(err, fs.ErrExist):
			err = dir.Rename(part, base) // the file system has no hard links
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return muster.Errorf(muster.Conflict, "%s was created during the download, or is the same as another file on this system: run the command again", t)
	}
	return muster.Errorf(muster.Invalid, "cannot write %s: %w", t, reason(err))
}

// reason returns an error without its operation and path.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
