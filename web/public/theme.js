// Sets the colour scheme before the first paint, so that the page does not flash. It is a file because the
// content security policy allows no inline scripts. The key and values are those of Mantine's color scheme manager.
(function () {
  var stored = null;
  try {
    stored = localStorage.getItem("mantine-color-scheme-value");
  } catch {
    // storage is disabled: follow the system
  }
  var dark = stored === "dark" || (stored !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
