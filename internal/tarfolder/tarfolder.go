// Package tarfolder copies files and folders as tar archives, out of and into folders that others may change meanwhile. Nothing outside the
// os.Root of a folder is read or written, whatever links it or an archive has.
package tarfolder

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Owner is the owner of new files.
type Owner struct{ UID, GID int }

// PackOptions configure Pack.
type PackOptions struct {
	// Open opens a regular file, and must not block on other files.
	Open func(root *os.Root, name string) (*os.File, error)
	Note func(text string) // called for what was left out or changed meanwhile; may be nil
}

// Pack writes the file or folder name, a slash-separated path in root, as a tar archive. Its paths begin with as; "." means that they are
// relative to the folder. Regular files, folders and symbolic links are included.
func Pack(ctx context.Context, root *os.Root, name, as string, w io.Writer, o PackOptions) error {
	note := noteFunc(o.Note)
	t := tar.NewWriter(w)
	err := fs.WalkDir(root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if p == name {
				return err
			}
			note("skipped %s: %v", p, reason(err))
			return nil
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p, name), "/")
		if name == "." && p != "." {
			rel = p
		}
		target := path.Join(as, rel)
		if target == "." {
			return nil // the folder itself
		}
		return packEntry(t, root, p, target, d, o.Open, note)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

func noteFunc(f func(string)) func(format string, args ...any) {
	return func(format string, args ...any) {
		if f != nil {
			f(fmt.Sprintf(format, args...))
		}
	}
}

// reason returns an error without its operation and path.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func packEntry(t *tar.Writer, root *os.Root, p, target string, d fs.DirEntry, open func(*os.Root, string) (*os.File, error), note func(string, ...any)) error {
	switch {
	case d.IsDir():
		info, err := d.Info()
		if err != nil {
			note("skipped %s: %v", p, reason(err))
			return nil
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: target + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()})
	case d.Type()&fs.ModeSymlink != 0:
		link, err := root.Readlink(filepath.FromSlash(p))
		if err != nil {
			note("skipped %s: %v", p, reason(err))
			return nil
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: target, Linkname: link, Mode: 0o777})
	case !d.Type().IsRegular():
		note("skipped %s: it is not a regular file", p)
		return nil
	}
	f, err := open(root, filepath.FromSlash(p))
	if err != nil {
		note("skipped %s: %v", p, reason(err))
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: target, Size: size, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}); err != nil {
		return err
	}
	n, err := io.Copy(t, io.LimitReader(f, size))
	if err != nil {
		return err
	}
	if n < size {
		note("%s became shorter while it was copied: its end is zeros", p)
		_, err = io.CopyN(t, zeros{}, size-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// UnpackOptions configure Unpack.
type UnpackOptions struct {
	Dir      string            // slash-separated path of an existing folder in the root; "" means the root
	From, To string            // only paths with the first element From are written, and it becomes To; "" means all paths, unchanged
	Owner    *Owner            // of new files and folders; nil means this process's
	Note     func(text string) // called for what was left out; may be nil

	// CheckName returns why the path of an entry is left out, which follows the path in a sentence; it may be nil.
	CheckName func(name string) error
	// Confirm, if not nil, is called before a file or link is written, and before a folder is created. Its error ends Unpack.
	Confirm func(Entry) error
}

// Entry is a file, link or new folder that Unpack is about to write.
type Entry struct {
	Name   string // slash-separated path in the root
	Below  string // the part of it that the archive chose: the path below From, "" for From itself, or all but Dir
	Exists bool   // a file or link of this path exists, and will be replaced
}

// Unpack writes the files, folders and symbolic links of a tar archive below root. Paths and links must stay inside; others are left out. No
// symbolic link below Dir is followed. A file gets its name when it is complete, so that an interrupted copy leaves the old one.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, o UnpackOptions) error {
	note := noteFunc(o.Note)
	t := tar.NewReader(r)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if errors.Is(err, tar.ErrHeader) {
				return muster.Errorf(muster.Invalid, "the input is not a tar archive")
			}
			return err
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			note("skipped %q: it is outside the folder", h.Name)
			continue
		}
		if o.CheckName != nil {
			if err := o.CheckName(name); err != nil {
				note("skipped %q: its name %v", h.Name, err)
				continue
			}
		}
		below := name
		if o.From != "" {
			first, rest, _ := strings.Cut(name, "/")
			if first != o.From {
				note("skipped %q: it is not %s or in it", h.Name, o.From)
				continue
			}
			name, below = path.Join(o.To, rest), rest
		}
		dir := path.Clean(cmp.Or(o.Dir, "."))
		u := unpacker{root: root, dir: dir, below: below, o: &o, note: note}
		if err := u.entry(t, h, path.Join(dir, name)); err != nil {
			return unpackError(name, err)
		}
	}
}

// unpackError explains an error for the user.
func unpackError(name string, err error) error {
	if errors.Is(err, errDiskFull) {
		return muster.Errorf(muster.StorageFull, "cannot write %s: the disk is full", name)
	}
	if muster.CodeOf(err) != muster.Internal {
		return err
	}
	return muster.Errorf(muster.Invalid, "cannot write %s: %w", name, reason(err))
}

// unpacker writes one entry of an archive.
type unpacker struct {
	root  *os.Root
	dir   string // which exists, and may be a link
	below string // see Entry
	o     *UnpackOptions
	note  func(string, ...any)
}

// confirm asks for a file or link, or for a new folder.
func (u *unpacker) confirm(name string, exists bool) error {
	if u.o.Confirm == nil {
		return nil
	}
	return u.o.Confirm(Entry{Name: name, Below: u.below, Exists: exists})
}

func (u *unpacker) entry(t io.Reader, h *tar.Header, name string) error {
	local := filepath.FromSlash(name)
	info, err := u.root.Lstat(local)
	exists := err == nil
	switch h.Typeflag {
	case tar.TypeDir:
		if !exists {
			if err := u.confirm(name, false); err != nil {
				return err
			}
		}
		return u.mkdir(name, fs.FileMode(h.Mode)&0o777|0o700)
	case tar.TypeReg:
	case tar.TypeSymlink:
		target := path.Clean(path.Join(path.Dir(name), filepath.ToSlash(h.Linkname)))
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.FromSlash(target)) {
			u.note("skipped the link %q: it leads to %q, outside the folder", h.Name, h.Linkname)
			return nil
		}
	default:
		u.note("skipped %q: it is neither a file, nor a folder, nor a symbolic link", h.Name)
		return nil
	}
	if exists && info.IsDir() {
		return errors.New("it exists and is a folder")
	}
	if err := cmp.Or(u.confirm(name, exists), u.mkdir(path.Dir(name), 0o755)); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeReg {
		return u.file(t, h, local)
	}
	if exists {
		if err := u.root.Remove(local); err != nil {
			return err
		}
	}
	return u.root.Symlink(h.Linkname, local)
}

// mkdir creates a folder and its missing parents, none of which may be a link.
func (u *unpacker) mkdir(name string, mode fs.FileMode) error {
	if name == u.dir || name == "." {
		return nil
	}
	if err := u.mkdir(path.Dir(name), 0o755); err != nil {
		return err
	}
	return u.mkdirIn(name, mode)
}

// mkdirIn creates a folder in an existing one.
func (u *unpacker) mkdirIn(name string, mode fs.FileMode) error {
	local := filepath.FromSlash(name)
	info, err := u.root.Lstat(local)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link", name)
	case err == nil:
		return fmt.Errorf("%s exists and is not a folder", name)
	}
	if err := u.root.Mkdir(local, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if u.o.Owner == nil {
		return nil
	}
	return chownDir(u.root, local, u.o.Owner)
}

// file writes a file beside its name, and renames it.
func (u *unpacker) file(t io.Reader, h *tar.Header, local string) (err error) {
	temporary := filepath.Join(filepath.Dir(local), ".muster-"+rand.Text())
	f, err := u.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = u.root.Remove(temporary)
		}
	}()
	_, err = io.Copy(f, t)
	if err == nil && u.o.Owner != nil {
		err = f.Chown(u.o.Owner.UID, u.o.Owner.GID)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode) & 0o777)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
		_ = u.root.Chtimes(temporary, time.Time{}, h.ModTime) // the copy is complete without it
	}
	return u.root.Rename(temporary, local)
}

// Destination decides where a copy goes, as cp does: into the folder dest if that exists, else to dest itself, whose parent must
// exist. dest is a slash-separated path in root, which may end in a slash if it must be a folder. name is the source's; "." means its
// contents, for which dest is created if it is missing.
func Destination(root *os.Root, dest, name string, owner *Owner) (o UnpackOptions, err error) {
	clean := path.Clean(cmp.Or(dest, "."))
	info, err := root.Stat(filepath.FromSlash(clean))
	switch {
	case err == nil && info.IsDir():
		o = UnpackOptions{Dir: clean, Owner: owner}
		if name != "." {
			o.From, o.To = name, name
		}
		return o, nil
	case err == nil && (name == "." || strings.HasSuffix(dest, "/")):
		return o, muster.Errorf(muster.Invalid, "%s is not a folder", dest)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return o, muster.Errorf(muster.Invalid, "cannot write to %s: %w", dest, reason(err))
	case err != nil && strings.HasSuffix(dest, "/") && name != ".":
		return o, muster.Errorf(muster.NotFound, "there is no folder %s: create it first", dest)
	}
	parent := path.Dir(clean)
	if info, err := root.Stat(filepath.FromSlash(parent)); err != nil || !info.IsDir() {
		return o, muster.Errorf(muster.NotFound, "there is no folder %s: create it first", parent)
	}
	if name == "." {
		u := unpacker{root: root, o: &UnpackOptions{Owner: owner}}
		if err := u.mkdirIn(clean, 0o755); err != nil {
			return o, muster.Errorf(muster.Invalid, "cannot create %s: %w", dest, reason(err))
		}
		return UnpackOptions{Dir: clean, Owner: owner}, nil
	}
	return UnpackOptions{Dir: parent, From: name, To: path.Base(clean), Owner: owner}, nil
}
