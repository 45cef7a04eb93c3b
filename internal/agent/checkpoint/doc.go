// Package save keeps the checkpoint folders of tasks on the server, so that a
// task that has to move, or whose machine is lost, goes on elsewhere.
//
// While a task runs its folder is looked at again and again. Files that changed since the last look,
// by size, time and inode, are uploaded by their hash; then the list of all files is, as a
// muster.Tree, and the server is told that tree's hash. So what the server has is whole, and what did not
// change costs neither reading nor sending. Between two looks is
// the time that the task asks for, and at least three times what the last look took.
//
// # What is consistent
//
// Each file is, if the program writes another one and renames it, as programs that survive a crash
// do. A file that changes while it is read keeps its last saved form, or is left out if there is none. Files
// are not saved at one moment: one that belongs to others should be written after them.
//
// # What a folder holds
//
// Beside a folder lies a note of the trees that it was, in the order of time, whether loaded or
// saved. A task that comes back with a tree of that list finds at least as much as it
// saved, and nothing is fetched. A folder whose machine was started again since is
// fetched anew, since a loss of power leaves files without their bytes; so is one that was being replaced when the
// worker ended. The note goes before the folder is replaced, and comes back
// after: there is no moment at which half a folder counts as whole.
//
// Folders belong to tasks, which are not trusted: nothing is read through a link that
// leads out of them.
package checkpoint
