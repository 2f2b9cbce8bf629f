// Tells you when a VM that sent heartbeats sends none, even if it is one of four hundred.
// For a feed in Log Analytics (docs/kql.md). One alert for each VM; it looks back one day, and a VM
// whose bridge was stopped regularly (package removed, VM shut down) is not missing.
//
//   az deployment group create --resource-group seb --template-file missing-alert.bicep \
//     --parameters workspaceId='<resource id of the workspace>' actionGroupId='<resource id of the action group>'

@description('Resource id of the Log Analytics workspace with the function SebRecords.')
param workspaceId string

@description('Resource id of the action group that is told.')
param actionGroupId string

@description('Minutes without any record after which a VM is missing. A heartbeat comes each minute.')
param minutes int = 10

param location string = resourceGroup().location

resource rule 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = {
  name: 'seb-vm-missing'
  location: location
  properties: {
    displayName: 'A VM sends no records of its Scheduled Events bridge'
    severity: 2
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'P1D'
    criteria: {
      allOf: [
        {
          query: 'SebRecords | extend name = tostring(data.vm.name) | summarize arg_max(observed, type, name) by partitionkey | where type != "seb.bridge.stopped.v1" and observed < ago(${minutes}m)'
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          dimensions: [
            {
              name: 'name'
              operator: 'Include'
              values: [
                '*'
              ]
            }
          ]
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: [
        actionGroupId
      ]
    }
    autoMitigate: true
  }
}
