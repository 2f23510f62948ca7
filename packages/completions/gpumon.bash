# Completion of gpumon for bash. The script comes from the gpumon that is on the PATH, so that it
# fits its version and your themes; bash-completion reads this file at the first Tab after gpumon.
eval "$(gpumon completion bash)"
