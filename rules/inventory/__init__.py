"""The facts for rules about other objects than the evaluated one."""
