package mlocbridge

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// maxModel is how many bytes and files an archive of a model may unpack to.
const (
	maxModel      = 1 << 40
	maxModelFiles = 100_000
)

// unpack puts the folder that a .tar.gz has at its root, such as final_model/, into dir, in place of one of that name.
// Links and everything else that is not a regular file are left out.
func unpack(ctx context.Context, archive, dir, name string) error {
	f, err := os.Open(archive)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot read %s: %w", archive, err)
	}
	defer func() { _ = f.Close() }()
	part := filepath.Join(dir, "."+name+".part")
	if err := errors.Join(os.RemoveAll(part), os.Mkdir(part, 0o700)); err != nil {
		return muster.Errorf(muster.Internal, "cannot unpack %s: %w", archive, err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	root, err := os.OpenRoot(part)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot unpack %s: %w", archive, err)
	}
	err = unpackInto(root, mloc.ContextReader(ctx, f), name)
	if err = cmp.Or(err, root.Close()); err != nil {
		return muster.Errorf(muster.Invalid, "cannot unpack %s: %w", filepath.Base(archive), err)
	}
	whole := filepath.Join(dir, name)
	if err := errors.Join(os.RemoveAll(whole), os.Rename(part, whole)); err != nil {
		return muster.Errorf(muster.Internal, "cannot unpack %s: %w", archive, err)
	}
	return nil
}

func unpackInto(root *os.Root, r io.Reader, name string) error {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	list, left, files := tar.NewReader(zipped), int64(maxModel), 0
	for {
		h, err := list.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		in, ok := strings.CutPrefix(path.Clean(h.Name), name+"/")
		if !ok || h.Typeflag != tar.TypeReg || !filepath.IsLocal(in) {
			continue
		}
		if files++; files > maxModelFiles {
			return muster.Errorf(muster.TooLarge, "it has more than %d files", maxModelFiles)
		}
		if err := root.MkdirAll(path.Dir(in), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(in, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		n, err := io.Copy(f, io.LimitReader(list, left))
		if err = cmp.Or(err, f.Close()); err != nil {
			return err
		}
		if left -= n; left <= 0 {
			return muster.Errorf(muster.TooLarge, "it unpacks to more than %d bytes", int64(maxModel))
		}
	}
}
