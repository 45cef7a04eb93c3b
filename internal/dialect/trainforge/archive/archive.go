// Package archive reads and writes untrusted zip archives: nothing is written outside the named folder, there are neither links nor
// two files of one name, and no more is unpacked than the limits allow, whatever sizes the archive declares.
package archive

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// Limits bound what an archive may hold.
type Limits struct {
	Files int   // entries
	Bytes int64 // of all files, unpacked
}

// Entries returns the plain files of an archive of size bytes by their names, which are relative paths that stay inside. It is Invalid for an
// archive that has anything else, says that it unpacks to more than the limits, or has one name twice.
func Entries(r io.ReaderAt, size int64, limits Limits) (map[string]*zip.File, error) {
	z, err := zip.NewReader(r, size)
	switch {
	case errors.Is(err, zip.ErrInsecurePath):
		return nil, muster.Errorf(muster.Invalid, "the archive has a path that leads out of it")
	case err != nil:
		return nil, muster.Errorf(muster.Invalid, "not a zip archive: %w", err)
	case len(z.File) > limits.Files:
		return nil, muster.Errorf(muster.TooLarge, "the archive has %d entries: at most %d are taken", len(z.File), limits.Files)
	}
	found := make(map[string]*zip.File, len(z.File))
	folders := map[string]bool{}
	var total uint64
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") || f.Mode().IsDir() {
			if strings.Trim(f.Name, "./\\") == "" {
				continue
			}
			name, err := Path("the entry", strings.TrimRight(f.Name, "/"))
			if err != nil {
				return nil, err
			}
			folders[name] = true
			continue
		}
		name, err := Path("the entry", f.Name)
		if err != nil {
			return nil, err
		}
		switch {
		case f.Mode()&fs.ModeType != 0:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is neither a file nor a folder", lenient.Text(f.Name, 100))
		case found[name] != nil:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is there twice", lenient.Text(f.Name, 100))
		case f.Flags&1 != 0:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is encrypted", lenient.Text(f.Name, 100))
		}
		found[name] = f
		total += f.UncompressedSize64
		if total > uint64(limits.Bytes) || f.UncompressedSize64 > uint64(limits.Bytes) {
			return nil, muster.Errorf(muster.TooLarge, "the archive unpacks to more than %s", muster.Size(limits.Bytes))
		}
	}
	for name := range found {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for name := range found {
		if folders[name] {
			return nil, muster.Errorf(muster.Invalid, "the entry %q is a file and a folder", lenient.Text(name, 100))
		}
	}
	return found, nil
}

// Path returns the clean form of a relative path that stays where it begins.
func Path(field, name string) (string, error) {
	clean := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || clean == "." || path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") ||
		len(clean) > 1 && clean[1] == ':' {
		return "", muster.Errorf(muster.Invalid, "%s %q is not a path inside the project", field, lenient.Text(name, 100))
	}
	return clean, nil
}

// Unpack writes the files of an archive into the empty folder dir. Nothing is written outside dir, and not more than the limits whatever the
// archive says of itself. After an error dir may hold a part.
func Unpack(ctx context.Context, r io.ReaderAt, size int64, dir string, limits Limits) error {
	found, err := Entries(r, size, limits)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	remaining := limits.Bytes
	for name, f := range found {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if parent := path.Dir(name); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o755); err != nil {
				return nameError(name, err)
			}
		}
		n, err := unpackFile(root, name, f, remaining)
		if err != nil {
			return err
		}
		remaining -= n
	}
	return nil
}

func nameError(name string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrInvalid) {
		return muster.Errorf(muster.Invalid, "the entry %q cannot be written: %w", lenient.Text(name, 100), err)
	}
	return err
}

func unpackFile(root *os.Root, name string, f *zip.File, remaining int64) (int64, error) {
	in, err := f.Open()
	if err != nil {
		return 0, muster.Errorf(muster.Invalid, "the entry %q cannot be read: %w", lenient.Text(name, 100), err)
	}
	defer in.Close()
	mode := fs.FileMode(0o644)
	if f.Mode()&0o100 != 0 {
		mode = 0o755
	}
	out, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, nameError(name, err)
	}
	n, err := io.Copy(out, io.LimitReader(in, remaining+1))
	err = cmp.Or(err, out.Close())
	if n > remaining {
		return n, muster.Errorf(muster.TooLarge, "the archive unpacks to more than it may")
	}
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !disk {
		return n, muster.Errorf(muster.Invalid, "the entry %q is damaged: %w", lenient.Text(name, 100), err)
	}
	return n, err
}

// Writer is an archive that is written.
type Writer struct {
	zip       *zip.Writer
	remaining int64
}

// Remaining is how many bytes of files may still be written.
func (p *Writer) Remaining() int64 { return p.remaining }

// NewWriter returns a Writer to w that takes at most maxBytes of files.
func NewWriter(w io.Writer, maxBytes int64) *Writer {
	return &Writer{zip: zip.NewWriter(w), remaining: maxBytes}
}

// create starts a file. All have the first time that a ZIP archive can say, so that the same files make the same bytes. A mode of 0 is not
// recorded.
func (p *Writer) create(name string, mode fs.FileMode) (io.Writer, error) {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
	if mode != 0 {
		h.SetMode(mode)
	}
	w, err := p.zip.CreateHeader(h)
	return &limitedWriter{w, p}, err
}

// Add writes one file of known content.
func (p *Writer) Add(name string, content []byte) error {
	return p.Stream(name, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// AddDir writes the files of dir under prefix. Links are written as what they lead to, if that is a file in dir.
func (p *Writer) AddDir(ctx context.Context, dir, prefix string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		w, err := p.create(prefix+name, info.Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return err
	})
}

// Stream writes a file that write makes.
func (p *Writer) Stream(name string, write func(w io.Writer) error) error {
	w, err := p.create(name, 0)
	if err != nil {
		return err
	}
	return write(w)
}

type limitedWriter struct {
	w io.Writer
	p *Writer
}

func (b *limitedWriter) Write(data []byte) (int, error) {
	if b.p.remaining -= int64(len(data)); b.p.remaining < 0 {
		return 0, muster.Errorf(muster.TooLarge, "the files are larger than an archive may be here")
	}
	return b.w.Write(data)
}

// Close writes the end of the archive. Without it there is none.
func (p *Writer) Close() error { return p.zip.Close() }
