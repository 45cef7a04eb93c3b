//go:build !linux

package isolation

func (g *treeChowner) walk(dir string) error { return g.walkPaths(dir) }
