// Applies the remembered theme before the first paint; a module would run too late and flash.
try {
  const theme = localStorage.getItem("wakeful.theme");
  if (theme === '"light"' || theme === '"dark"') document.documentElement.dataset.theme = JSON.parse(theme);
} catch {
  // Storage is blocked: the system's preference applies.
}
