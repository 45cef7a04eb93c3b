// Command ociimage makes the archive of a container image with the program only, for docker load and podman load. The same files and
// SOURCE_DATE_EPOCH give the same image.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is the user and group of the server in the image, as the nonroot user of other minimal images.
const user = 65532

// data is the folder of a server's or a worker's data in the image.
const data = "/var/lib/muster"

// options describe the image.
type options struct {
	program, certs string // files
	arch, version  string
	time           time.Time
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "bin/muster", "static program for Linux")
	flag.StringVar(&o.certs, "certs", "/etc/ssl/certs/ca-certificates.crt", "file with the certificates of trusted authorities")
	flag.StringVar(&o.arch, "arch", "amd64", "architecture of the program")
	flag.StringVar(&o.version, "version", "dev", "version, which is the tag of the image, too")
	output := flag.String("o", "", "file to write")
	flag.Parse()
	if err := run(o, *output); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(o options, output string) error {
	if output == "" {
		return errors.New("no file to write: set -o")
	}
	seconds, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	o.time = time.Unix(seconds, 0).UTC()
	image, err := build(o)
	if err != nil {
		return err
	}
	// A tag has none of these characters.
	tag, err := name.NewTag("muster:" + strings.NewReplacer("+", "-", "~", "-").Replace(o.version))
	if err != nil {
		return err
	}
	return tarball.WriteToFile(output, tag, image)
}

// build returns the image.
func build(o options) (v1.Image, error) {
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.time}, CreatedBy: "muster " + o.version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", o.arch, v1.Time{Time: o.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/muster"}, Cmd: []string{"server"}, User: strconv.Itoa(user), WorkingDir: "/",
		Env:          []string{"PATH=/usr/bin", "HOME=" + data, "MUSTER_DATA=" + data, "MUSTER_CONFIG=" + data + "/context.json"},
		ExposedPorts: map[string]struct{}{"8700/tcp": {}},
		Volumes:      map[string]struct{}{data: {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "muster", "org.opencontainers.image.version": o.version, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/muster-dev/muster",
		},
	}
	return mutate.ConfigFile(image, config)
}

// files returns the files of the image as a tar file.
func (o options) files() ([]byte, error) {
	program, err := os.ReadFile(o.program)
	if err != nil {
		return nil, err
	}
	certs, err := os.ReadFile(o.certs)
	if err != nil {
		return nil, fmt.Errorf("certificates of trusted authorities: %w: install ca-certificates, or set -certs", err)
	}
	entries := []struct {
		name    string
		mode    int64
		owner   int
		content []byte // nil for a folder
	}{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nmuster:x:%d:\n", user)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/root:/sbin/nologin\nmuster:x:%d:%[1]d:muster:%s:/sbin/nologin\n", user, data)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: certs},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/muster", mode: 0o755, content: program},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/muster/", mode: 0o700, owner: user}, // new volumes get its owner and mode
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.content)), ModTime: o.time}
		if e.content == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}
