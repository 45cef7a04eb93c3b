// Package checkpoint uploads the checkpoint folders of tasks to the server, so that a task can continue on another worker.
//
// While a task runs, its folder is scanned periodically. Files whose size, time or inode has changed are uploaded by their hash, then
// the list of all files, as a muster.Tree, and the server gets the hash of that tree. So the server's copy is always complete, and
// unchanged files are neither read nor sent. The interval is the spec's, and at least three times the duration of the last scan.
//
// # Consistency
//
// A file is consistent if the program writes a new file and renames it. A file that changes while it is read keeps its last uploaded
// version, or is left out if there is none. Files are not uploaded at one point in time: a file that refers to others should be
// written after them.
//
// # Manifest
//
// A manifest beside each folder lists the trees that the folder has been, loaded or uploaded, oldest first. A task that returns with a
// tree of that list finds at least that state, and nothing is fetched. The folder is fetched again after a reboot, because a power loss
// may truncate files, and after an interrupted replacement: the manifest is removed before a replacement and written after it.
//
// Folders belong to tasks, which are not trusted: links that point outside are not followed.
package checkpoint
